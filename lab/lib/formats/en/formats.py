"""How times are written where Django writes them itself, as at /admin/: as everywhere in the lab, in UTC and in one line."""

DATE_FORMAT = "Y-m-d"
DATETIME_FORMAT = "Y-m-d H:i"
