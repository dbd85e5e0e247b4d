from rankbound import data as data
from rankbound import difficulty as difficulty
from rankbound import errors as errors
from rankbound import evaluation as evaluation
from rankbound import losses as losses
from rankbound import measures as measures
from rankbound import models as models
from rankbound.difficulty.bounds import bounds as bounds
from rankbound.difficulty.distribution import distribution as distribution
from rankbound.difficulty.queries import difficulty_weights as difficulty_weights
from rankbound.difficulty.queries import query_types as query_types
from rankbound.difficulty.weights import effective_sample_fraction as effective_sample_fraction
from rankbound.evaluation import evaluate as evaluate
from rankbound.evaluation import evaluate_references as evaluate_references
from rankbound.evaluation.against_random import against_random as against_random
from rankbound.evaluation.audit import audit as audit
from rankbound.evaluation.comparison import compare as compare
from rankbound.evaluation.gate import gate as gate
from rankbound.evaluation.inference import Inference as Inference
from rankbound.lists import Lists as Lists
from rankbound.measures.measure import parse_measure as parse_measure
from rankbound.parallel import set_threads as set_threads
from rankbound.protocol import Protocol as Protocol
from rankbound.studies.study import run_study as run_study

__version__: str
