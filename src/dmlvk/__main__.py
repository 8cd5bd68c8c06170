"""``python -m dmlvk``."""

from dmlvk.cli import main

raise SystemExit(main())
