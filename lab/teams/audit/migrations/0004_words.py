"""What /admin/ calls entries; nothing in the database changes."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("audit", "0003_search")]

    operations = [migrations.AlterModelOptions("entry", {"verbose_name_plural": "entries of the audit log"})]
