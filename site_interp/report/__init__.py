"""One HTML page of a run's output folder that needs no network: tables, figures, examples and configuration.

Everything is read from the folder; no model is loaded, and every text from outside is escaped.
"""

from site_interp.report.page import report_page, write_report

__all__ = ["report_page", "write_report"]
