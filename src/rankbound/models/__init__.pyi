from rankbound.models.adarank import AdaRank as AdaRank
from rankbound.models.backbone import backbone_features as backbone_features
from rankbound.models.base import Ranker as Ranker
from rankbound.models.convolution import RankCNN as RankCNN
from rankbound.models.coordinate_ascent import CoordinateAscent as CoordinateAscent
from rankbound.models.ease import EASE as EASE
from rankbound.models.export import export_formats as export_formats
from rankbound.models.export import export_lightgbm as export_lightgbm
from rankbound.models.export import export_ranker as export_ranker
from rankbound.models.export import export_ranklib as export_ranklib
from rankbound.models.export import export_xgboost_json as export_xgboost_json
from rankbound.models.factorization import MatrixFactorization as MatrixFactorization
from rankbound.models.implicit_als import ImplicitALS as ImplicitALS
from rankbound.models.item_knn import ItemKNN as ItemKNN
from rankbound.models.linear import LinearRanker as LinearRanker
from rankbound.models.logistic import LogisticRanker as LogisticRanker
from rankbound.models.neural import DirectRanker as DirectRanker
from rankbound.models.neural import ListNet as ListNet
from rankbound.models.neural import MLPRanker as MLPRanker
from rankbound.models.neural import RankNet as RankNet
from rankbound.models.onnx import export_onnx as export_onnx
from rankbound.models.popularity import Popularity as Popularity
from rankbound.models.rankboost import RankBoost as RankBoost
from rankbound.models.recommender import Recommender as Recommender
from rankbound.models.regression import RegressionRanker as RegressionRanker
from rankbound.models.saving import load_ranker as load_ranker
from rankbound.models.splitting import QueryKFold as QueryKFold
from rankbound.models.structured import SVMmap as SVMmap
from rankbound.models.trees import BoostingRanker as BoostingRanker
from rankbound.models.trees import LambdaMART as LambdaMART
from rankbound.models.trees import RandomForestRanker as RandomForestRanker
from rankbound.tuning.search import tune as tune

RANKERS: tuple[str, ...]
RECOMMENDERS: tuple[str, ...]
