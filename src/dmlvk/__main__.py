"""``python -m dmlvk``."""

from dmlvk.cli import main

raise SystemExit(main(name="python -m dmlvk"))
