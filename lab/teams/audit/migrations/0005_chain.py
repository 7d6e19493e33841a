"""The hash chain: a link for every entry there is, in the order of their ids; from now on the database notes each new entry for linking."""

from django.db import migrations, models

from lab.teams.audit.chain import START, Head, build_chain_links

BATCH = 1000
CREATE = """
CREATE FUNCTION audit_entry_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit_unchained (entry_id) VALUES (NEW.id);
    RETURN NULL;
END
$$;
CREATE TRIGGER audit_entry_waits AFTER INSERT ON audit_entry FOR EACH ROW EXECUTE FUNCTION audit_entry_note();
CREATE TRIGGER audit_chainlink_append_only BEFORE UPDATE OR DELETE ON audit_chainlink FOR EACH STATEMENT EXECUTE FUNCTION audit_entry_refuse();
"""
DROP = """
DROP TRIGGER audit_entry_waits ON audit_entry;
DROP FUNCTION audit_entry_note();
DROP TRIGGER audit_chainlink_append_only ON audit_chainlink;
"""


def link_existing(apps, schema_editor):
    entries, links = (apps.get_model("audit", name).objects for name in ("Entry", "ChainLink"))
    head, after = Head(0, START), 0
    while batch := list(entries.defer("words").filter(pk__gt=after).order_by("pk")[:BATCH]):
        made = list(build_chain_links(head, batch))
        links.bulk_create(links.model(number=number, entry_id=entry_id, digest=digest) for number, entry_id, digest in made)
        head, after = Head(made[-1][0], made[-1][2]), batch[-1].pk


class Migration(migrations.Migration):
    dependencies = [("audit", "0004_words")]

    operations = [
        migrations.CreateModel(
            "ChainLink",
            fields=[
                ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ("entry_id", models.BigIntegerField(unique=True)),
                ("digest", models.BinaryField()),
            ],
            options={"verbose_name_plural": "links of the audit log's chain"},
        ),
        migrations.CreateModel(
            "Unchained",
            fields=[("entry_id", models.BigIntegerField(primary_key=True, serialize=False))],
            options={"verbose_name_plural": "entries that wait for their link"},
        ),
        migrations.RunPython(link_existing, migrations.RunPython.noop),
        migrations.RunSQL(CREATE, DROP),
    ]
