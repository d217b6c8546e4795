"""State and timers of a component's DoFn in the words of the pipeline: what the manifest says, as Beam's messages."""

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

from purlin.manifest import State, Timer, Transform

BAG = "beam:user_state:bag:v1"
MULTIMAP = "beam:user_state:multimap:v1"
ORDERED_LIST = "beam:user_state:ordered_list:v1"

# A component adds inputs to accumulators itself: this only says that there is nothing for a runner to combine.
COMBINE_FN_URN = "purlin:combinefn:in_component:v1"


def add_to(payload: beam_runner_api_pb2.ParDoPayload, transform: Transform, coders, window_coder_id: str) -> None:
    """Adds specs of all states and timer families. `coders.write` and `coders.write_timer` add coders and give their ids."""
    for state in transform.states:
        payload.state_specs[state.name].CopyFrom(_state_spec(state, coders))
    for timer in transform.timers:
        coder_id = coders.write_timer(transform.input.parts[0], window_coder_id)
        payload.timer_family_specs[timer.name].CopyFrom(_timer_spec(timer, coder_id))
    if transform.expiration:
        payload.on_window_expiration_timer_family_spec = transform.expiration


def requirements(transform: Transform) -> list[str]:
    """What a runner must know to run the transform."""
    requirements = common_urns.requirements
    needed = [requirements.REQUIRES_STATEFUL_PROCESSING.urn]
    if transform.expiration:
        needed.append(requirements.REQUIRES_ON_WINDOW_EXPIRATION.urn)
    return needed


def _state_spec(state: State, coders) -> beam_runner_api_pb2.StateSpec:
    element = coders.write(state.coder)
    if state.kind == "value":
        spec = {"read_modify_write_spec": beam_runner_api_pb2.ReadModifyWriteStateSpec(coder_id=element)}
    elif state.kind == "bag":
        spec = {"bag_spec": beam_runner_api_pb2.BagStateSpec(element_coder_id=element)}
    elif state.kind == "combining":
        combine_fn = beam_runner_api_pb2.FunctionSpec(urn=COMBINE_FN_URN)
        spec = {"combining_spec": beam_runner_api_pb2.CombiningStateSpec(accumulator_coder_id=element, combine_fn=combine_fn)}
    elif state.kind == "map":
        key = coders.write(state.key)
        spec = {"map_spec": beam_runner_api_pb2.MapStateSpec(key_coder_id=key, value_coder_id=element)}
    elif state.kind == "set":
        spec = {"set_spec": beam_runner_api_pb2.SetStateSpec(element_coder_id=element)}
    else:
        spec = {"ordered_list_spec": beam_runner_api_pb2.OrderedListStateSpec(element_coder_id=element)}
    protocol = {"map": MULTIMAP, "set": MULTIMAP, "ordered-list": ORDERED_LIST}.get(state.kind, BAG)
    return beam_runner_api_pb2.StateSpec(protocol=beam_runner_api_pb2.FunctionSpec(urn=protocol), **spec)


def _timer_spec(timer: Timer, coder_id: str) -> beam_runner_api_pb2.TimerFamilySpec:
    domains = beam_runner_api_pb2.TimeDomain
    domain = domains.EVENT_TIME if timer.domain == "event-time" else domains.PROCESSING_TIME
    return beam_runner_api_pb2.TimerFamilySpec(time_domain=domain, timer_family_coder_id=coder_id)
