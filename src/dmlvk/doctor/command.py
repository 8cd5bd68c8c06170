"""``python -m dmlvk doctor``: the whole examination, and how it reads."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Iterable
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


def diagnose(system: System, say: Callable[[str], None]) -> Diagnosis:
    """Examines a machine and tries its devices.

    Args:
        system: The machine.
        say: Called with each line for people as soon as it is known, since a broken driver may end the process.
    """
    words = f"dmlvk {dmlvk.__version__}, Python {platform.python_version()}, {system.name}, {platform.machine()}"
    say(words)

    def told(found: Iterable[Finding]) -> tuple[Finding, ...]:
        findings = tuple(found)
        for finding in findings:
            say(f"{finding.state:5}  {finding.part}: {finding.text}")
            if finding.mend:
                say(f"       -> {finding.mend}")
        return findings

    findings = told(all_findings(system))
    devices, faults = find_devices(system)
    findings += told(faults)
    trials = []
    for device in devices:
        trials.append(try_device(device))
        told(trials[-1].findings)
    diagnosis = Diagnosis(words, findings, tuple(trials))
    working = sum(trial.works for trial in trials)
    say(f"{working} of {len(trials)} devices work" + ("" if working else "; mend the faults above"))
    return diagnosis
