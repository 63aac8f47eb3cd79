"""verl: the weight sync of its SGLang rollout.

0.7.1 and 0.8.0 clone every tensor; 0.9.0 and 0.9.1 clone what has a ``_base``. 0.9.1 can also keep fused
groups of names together, through a third argument that is left at its default, no groups.
"""

from typing import NoReturn

from bucketproof.reference.released.loading import excerpt, member_of, whole
from bucketproof.reference.released.registry import Bucketer, adapter
from bucketproof.reference.released.wheels import Unavailable, Wheel

_BUCKETER = "verl/workers/rollout/sglang_rollout/utils.py"
_HELPER = "verl/workers/rollout/utils.py"
_RELEASES = {
    "0.7.1": "0f7fb1dd6a37d20f7d8795c65ed0d1b9797ffb9947f283bbefd758dced08e216",
    "0.8.0": "4e32830aae80771ee3b5f0d26a2b794d793f3bcece67aff07c2a7c62e948714f",
    "0.9.0": "6e9374db1e2ab346a0aafe9a202bee1b239a042def2f2ccd6db2a4cd04c6308b",
    "0.9.1": "db6e6f2a8d9d5808d9ec32d357a42319fdc6967df688ff9d9810050f49bfdd14",
}


@adapter(
    "verl",
    source=_BUCKETER,
    releases=_RELEASES,
    why="verl hands its weights to the SGLang rollout engine in the buckets that this function yields",
)
def get_named_tensor_buckets(wheel: Wheel) -> Bucketer:
    # its own file imports web servers and Ray, hence not the whole of it
    helper = excerpt(wheel, _HELPER, ["ensure_async_iterator"])
    supplies = {
        "verl.utils.device": {"get_device_name": _no_device_name},
        "verl.workers.rollout.utils": {"ensure_async_iterator": helper.ensure_async_iterator},
    }
    bucketer: Bucketer = member_of(whole(wheel, _BUCKETER, supplies), "get_named_tensor_buckets")
    return bucketer


def _no_device_name() -> NoReturn:
    # only the file's broadcast helper asks; a made-up answer could bend a later release's bucketer unseen
    raise Unavailable("this release's bucketer asks for verl's get_device_name, which is not supplied")
