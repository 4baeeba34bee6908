"""What the paper promises: explicit bounds behind Theorems 1 to 4, and its lemmas on a run."""

from safedrift.kernels.audit.memory import Transcript
from safedrift.theory.audit import Audit
from safedrift.theory.bound_terms import Constants, Term
from safedrift.theory.certificate_rules import evaluate_certificates
from safedrift.theory.certificates import Certificate, Certificates, Form
from safedrift.theory.explicit_bounds import Bound, Row, bounds, table
from safedrift.theory.rates import Rate, crossover, rate

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
    "crossover",
    "evaluate_certificates",
    "rate",
    "table",
]
