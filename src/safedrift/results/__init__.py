"""Results: a run of any learner as data, in memory and on disk."""

from safedrift.results import comparison_storage as comparison_storage
from safedrift.results import comparison_text as comparison_text
from safedrift.results.comparison import Comparison
from safedrift.results.description import Description
from safedrift.results.manifest import LearnerRecord, Manifest, SizesRecord
from safedrift.results.many_runs import ManyRuns
from safedrift.results.run import Run
from safedrift.results.run_folders import from_folder
from safedrift.results.storage import from_parquet, to_parquet
from safedrift.results.summaries import notes, summary
from safedrift.results.truth import Outcome, Truth, unknown_truth
from safedrift.results.verdicts import verdict

__all__ = [
    "Comparison",
    "Description",
    "LearnerRecord",
    "Manifest",
    "ManyRuns",
    "Outcome",
    "Run",
    "SizesRecord",
    "Truth",
    "from_folder",
    "from_parquet",
    "notes",
    "summary",
    "to_parquet",
    "unknown_truth",
    "verdict",
]
