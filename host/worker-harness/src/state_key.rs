//! State keys of the Fn API as the worker contract names them.

use model::TransformId;
use proto::fnapi::state_key::Type;
use worker::StateKey;

/// Translates a key. The error is a text for the SDK.
pub(crate) fn decode(key: proto::fnapi::StateKey) -> Result<StateKey, String> {
    let id = |id: String| TransformId::from(id);
    Ok(match key.r#type.ok_or("a state request without a known kind of state key")? {
        Type::Runner(key) => StateKey::Runner { key: key.key },
        Type::IterableSideInput(key) => {
            StateKey::IterableSideInput { transform: id(key.transform_id), side_input: key.side_input_id, window: key.window }
        }
        Type::MultimapSideInput(key) => StateKey::MultimapSideInput {
            transform: id(key.transform_id),
            side_input: key.side_input_id,
            window: key.window,
            key: key.key,
        },
        Type::MultimapKeysSideInput(key) => {
            StateKey::MultimapKeysSideInput { transform: id(key.transform_id), side_input: key.side_input_id, window: key.window }
        }
        Type::MultimapKeysValuesSideInput(key) => StateKey::MultimapKeysValuesSideInput {
            transform: id(key.transform_id),
            side_input: key.side_input_id,
            window: key.window,
        },
        Type::BagUserState(key) => {
            StateKey::Bag { transform: id(key.transform_id), state: key.user_state_id, window: key.window, key: key.key }
        }
        Type::MultimapUserState(key) => StateKey::Multimap {
            transform: id(key.transform_id),
            state: key.user_state_id,
            window: key.window,
            key: key.key,
            map_key: key.map_key,
        },
        Type::MultimapKeysUserState(key) => {
            StateKey::MultimapKeys { transform: id(key.transform_id), state: key.user_state_id, window: key.window, key: key.key }
        }
        Type::MultimapEntriesUserState(key) => StateKey::MultimapEntries {
            transform: id(key.transform_id),
            state: key.user_state_id,
            window: key.window,
            key: key.key,
        },
        Type::OrderedListUserState(key) => {
            // Appends carry no range: they are told apart by their entries.
            let (start, end) = key.range.map_or((i64::MIN, i64::MAX), |range| (range.start, range.end));
            StateKey::OrderedList {
                transform: id(key.transform_id),
                state: key.user_state_id,
                window: key.window,
                key: key.key,
                start,
                end,
            }
        }
    })
}
