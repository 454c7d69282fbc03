"""A self-test of a model on this machine with these versions, to run before any number is trusted."""

from site_interp.doctor.check import Check
from site_interp.doctor.examination import check_model, iterate_checks, n_checks
from site_interp.doctor.machine import describe_machine

__all__ = ["Check", "check_model", "describe_machine", "iterate_checks", "n_checks"]
