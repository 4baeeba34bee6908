"""What the paper promises: explicit bounds behind Theorems 1 to 4, and its lemmas on a run."""

from safedrift.kernels.audit_memory import Transcript
from safedrift.theory.audit import Audit
from safedrift.theory.bounds import Bound, Row, bounds, table
from safedrift.theory.certificates import Certificate, Certificates, Form
from safedrift.theory.checks import certificates
from safedrift.theory.rates import Rate, crossover, rate
from safedrift.theory.terms import Constants, Term

__all__ = [
    "Audit",
    "Bound",
    "Certificate",
    "Certificates",
    "Constants",
    "Form",
    "Rate",
    "Row",
    "Term",
    "Transcript",
    "bounds",
    "certificates",
    "crossover",
    "rate",
    "table",
]
