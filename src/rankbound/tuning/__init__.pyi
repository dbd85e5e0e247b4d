from rankbound.tuning.progress import TuneProgress as TuneProgress
from rankbound.tuning.progress import show_progress as show_progress
from rankbound.tuning.result import TuneResult as TuneResult
from rankbound.tuning.search import tune as tune
from rankbound.tuning.space import read_space as read_space
