"""The operator table: one class a DirectML operator, one file a family. Rows only; no numpy, no GPU.

The star imports bring every row into this namespace and into ``dmlvk``; a row needs no other registration.
"""

from dmlvk.spec.ops.activation import *  # noqa: F403
from dmlvk.spec.ops.attention import *  # noqa: F403
from dmlvk.spec.ops.compaction import *  # noqa: F403
from dmlvk.spec.ops.convolution import *  # noqa: F403
from dmlvk.spec.ops.elementwise import *  # noqa: F403
from dmlvk.spec.ops.fill import *  # noqa: F403
from dmlvk.spec.ops.fold import *  # noqa: F403
from dmlvk.spec.ops.gather import *  # noqa: F403
from dmlvk.spec.ops.gradient import *  # noqa: F403
from dmlvk.spec.ops.integer import *  # noqa: F403
from dmlvk.spec.ops.local_response_gradient import *  # noqa: F403
from dmlvk.spec.ops.logical import *  # noqa: F403
from dmlvk.spec.ops.matmul import *  # noqa: F403
from dmlvk.spec.ops.movement import *  # noqa: F403
from dmlvk.spec.ops.normalization import *  # noqa: F403
from dmlvk.spec.ops.normalization_gradient import *  # noqa: F403
from dmlvk.spec.ops.optimizer import *  # noqa: F403
from dmlvk.spec.ops.pooling import *  # noqa: F403
from dmlvk.spec.ops.pooling_gradient import *  # noqa: F403
from dmlvk.spec.ops.quantization import *  # noqa: F403
from dmlvk.spec.ops.random import *  # noqa: F403
from dmlvk.spec.ops.recurrent import *  # noqa: F403
from dmlvk.spec.ops.reduction import *  # noqa: F403
from dmlvk.spec.ops.resample import *  # noqa: F403
from dmlvk.spec.ops.resample_gradient import *  # noqa: F403
from dmlvk.spec.ops.roi import *  # noqa: F403
from dmlvk.spec.ops.roi_gradient import *  # noqa: F403
from dmlvk.spec.ops.scan import *  # noqa: F403
from dmlvk.spec.ops.scatter import *  # noqa: F403
from dmlvk.spec.ops.sort import *  # noqa: F403
