"""THE rules: the one visible place that chooses kernels, one file a family, named as in ``lowering``.

A family has an ordered tuple of rules. The first whose condition holds wins, and the last always holds. A rule reads
the problem and the device's capabilities and names the measurement that justifies it. ``python -m dmlvk explain``
prints each rule with yes or no; tests force every rule whose ``possible`` holds and compare it with the oracle.
"""
