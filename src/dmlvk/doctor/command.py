"""``python -m dmlvk doctor``: the whole examination, and how it reads."""

from __future__ import annotations

import dataclasses
import platform
from dataclasses import dataclass
from typing import Any

import dmlvk
from dmlvk.doctor.findings import Finding, all_findings
from dmlvk.doctor.system import System
from dmlvk.doctor.trial import Trial, find_devices, try_device


@dataclass(frozen=True)
class Diagnosis:
    """What was found.

    Attributes:
        system: Versions and system, in words.
        findings: What there is to say of the machine.
        trials: What became of each device.
    """

    system: str
    findings: tuple[Finding, ...]
    trials: tuple[Trial, ...]

    @property
    def works(self) -> bool:
        """Whether a device works."""
        return any(trial.works for trial in self.trials)

    def as_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "system": self.system,
            "works": self.works,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "devices": [
                {
                    "index": trial.device.index,
                    "name": trial.device.name,
                    "uuid": trial.device.uuid,
                    "works": trial.works,
                    "findings": [dataclasses.asdict(finding) for finding in trial.findings],
                }
                for trial in self.trials
            ],
        }

    def lines(self) -> list[str]:
        """For people: what each finding is, and under it what mends it."""
        lines = [self.system]
        for finding in (*self.findings, *(finding for trial in self.trials for finding in trial.findings)):
            lines.append(f"{finding.state:5}  {finding.part}: {finding.text}")
            if finding.mend:
                lines.append(f"       -> {finding.mend}")
        working = sum(trial.works for trial in self.trials)
        lines.append(f"{working} of {len(self.trials)} devices work" + ("" if working else "; mend the faults above"))
        return lines


def diagnose(system: System) -> Diagnosis:
    """Examines a machine and tries its devices."""
    words = f"dmlvk {dmlvk.__version__}, Python {platform.python_version()}, {system.name}, {platform.machine()}"
    found, faults = find_devices(system)
    return Diagnosis(words, (*all_findings(system), *faults), tuple(map(try_device, found)))
