"""The outcome of a run as a value, and its writers."""

from resize_pos.report.report import FineTune, Report, Status, TableReport

__all__ = ["FineTune", "Report", "Status", "TableReport"]
