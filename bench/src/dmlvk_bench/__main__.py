"""``python -m dmlvk_bench``."""

from dmlvk_bench.cli import main

raise SystemExit(main())
