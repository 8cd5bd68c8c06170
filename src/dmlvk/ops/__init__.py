"""The operator table: one class a DirectML operator, one file a family. Rows only; no numpy, no GPU.

The star imports bring every row into this namespace and into ``dmlvk``; a row needs no other registration.
"""

from dmlvk.ops.activation import *  # noqa: F403
from dmlvk.ops.attention import *  # noqa: F403
from dmlvk.ops.compaction import *  # noqa: F403
from dmlvk.ops.convolution import *  # noqa: F403
from dmlvk.ops.elementwise import *  # noqa: F403
from dmlvk.ops.fill import *  # noqa: F403
from dmlvk.ops.fold import *  # noqa: F403
from dmlvk.ops.gather import *  # noqa: F403
from dmlvk.ops.gradient import *  # noqa: F403
from dmlvk.ops.integer import *  # noqa: F403
from dmlvk.ops.local_response_gradient import *  # noqa: F403
from dmlvk.ops.logical import *  # noqa: F403
from dmlvk.ops.matmul import *  # noqa: F403
from dmlvk.ops.movement import *  # noqa: F403
from dmlvk.ops.normalization import *  # noqa: F403
from dmlvk.ops.normalization_gradient import *  # noqa: F403
from dmlvk.ops.optimizer import *  # noqa: F403
from dmlvk.ops.pooling import *  # noqa: F403
from dmlvk.ops.pooling_gradient import *  # noqa: F403
from dmlvk.ops.quantization import *  # noqa: F403
from dmlvk.ops.random import *  # noqa: F403
from dmlvk.ops.recurrent import *  # noqa: F403
from dmlvk.ops.reduction import *  # noqa: F403
from dmlvk.ops.resample import *  # noqa: F403
from dmlvk.ops.resample_gradient import *  # noqa: F403
from dmlvk.ops.roi import *  # noqa: F403
from dmlvk.ops.roi_gradient import *  # noqa: F403
from dmlvk.ops.scan import *  # noqa: F403
from dmlvk.ops.scatter import *  # noqa: F403
from dmlvk.ops.sort import *  # noqa: F403
