"""PostgreSQL: a function that stores a batch of events, so that a commit costs one round trip and a short lock."""

from alembic import op

revision = "0006"
down_revision = "0005"

# Its steps are those of `journal.chain.EventBatch.append`, in the same order, and so are its locks.
_APPEND = """
CREATE FUNCTION shikisha_append(
  of_writer text, of_batch bigint, at_time double precision, of_member text,
  runs text[], kinds text[], times double precision[], datas text[], tails bytea[],
  body_hashes text[], body_bytes bytea[], body_runs text[], body_shared boolean[],
  statements text[], statement_rows text[]
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  first bigint;
  following bigint;
  last text;
  hashes text[] := '{}';
BEGIN
  SELECT head.count, head.hash INTO first, last FROM head FOR UPDATE;
  IF NOT FOUND THEN RETURN 'missing'; END IF;
  IF first IS NULL OR last IS NULL THEN RETURN 'damaged'; END IF;
  PERFORM 1 FROM applied WHERE applied.writer = of_writer AND applied.batch = of_batch;
  IF FOUND THEN RETURN 'stored'; END IF;
  IF of_member IS NOT NULL THEN
    PERFORM 1 FROM members WHERE members.id = of_member AND members.state = 'alive' FOR SHARE;
    IF NOT FOUND THEN RETURN 'fenced'; END IF;
  END IF;
  IF cardinality(runs) > 0 THEN
    following := first;
    FOR place IN 1 .. cardinality(runs) LOOP
      last := encode(sha256(convert_to(last || '[' || following, 'UTF8') || tails[place]), 'hex');
      hashes[place] := last;
      following := following + 1;
    END LOOP;
    IF cardinality(body_hashes) > 0 THEN
      INSERT INTO bodies (hash, body, run, shared)
        SELECT * FROM unnest(body_hashes, body_bytes, body_runs, body_shared)
        ON CONFLICT (hash) DO UPDATE SET shared = true WHERE NOT bodies.shared AND bodies.run <> excluded.run;
    END IF;
    INSERT INTO events (seq, run, kind, at, data, hash)
      SELECT first + each.place - 1, each.run, each.kind, each.at, each.data, each.hash
      FROM unnest(runs, kinds, times, datas, hashes) WITH ORDINALITY AS each(run, kind, at, data, hash, place);
    UPDATE head SET count = following, hash = last;
  END IF;
  FOR place IN 1 .. cardinality(statements) LOOP
    EXECUTE statements[place] USING statement_rows[place]::jsonb;
  END LOOP;
  UPDATE applied SET batch = of_batch, at = at_time WHERE applied.writer = of_writer;
  IF NOT FOUND THEN
    DELETE FROM applied WHERE applied.at < at_time - 604800;
    INSERT INTO applied (writer, batch, at) VALUES (of_writer, of_batch, at_time);
  END IF;
  RETURN 'stored';
END $$
"""


def upgrade() -> None:
    """Make the function where the store is PostgreSQL."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_APPEND)
