from rankbound.integrations.lightgbm import lightgbm_metric as lightgbm_metric
from rankbound.integrations.xgboost import xgboost_metric as xgboost_metric
