//! Values that the cluster takes and that stop work. Each was run on 16.2.15 (docs/results/2026-11-29-values-that-stop-work.md).

/// An option, the least value with which work goes on, and the harm of a smaller one.
struct Least {
    option: &'static str,
    least: f64,
    why: &'static str,
}

const fn least(option: &'static str, least: f64, why: &'static str) -> Least {
    Least { option, least, why }
}

const NO_RECOVERY: &str = "OSDs of that kind recover nothing, unless osd_recovery_max_active is set";
const NO_SHARD: &str = "the OSD has no shard for its requests, and does not come up";
const NO_THREAD: &str = "no thread serves the requests of the OSD";

/// 0 stands for "by the kind of disk" in `osd_recovery_max_active`, `osd_op_num_shards` and `osd_op_num_threads_per_shard`, and for "no
/// limit" in throttles (`osd_client_message_cap`): those are no harm, and are not here.
const LEAST: [Least; 14] = [
    // AsyncReserver grants while fewer than max_allowed are in progress.
    least("osd_max_backfills", 1.0, "no placement group is recovered or backfilled"),
    least("osd_max_trimming_pgs", 1.0, "removed snapshots are never trimmed, and keep their space"),
    // OSDService::_recover_now starts nothing once the active ones reach OSD::get_recovery_max_active.
    least("osd_recovery_max_active_hdd", 1.0, NO_RECOVERY),
    least("osd_recovery_max_active_ssd", 1.0, NO_RECOVERY),
    // OSDService::_maybe_queue_recovery hands so many to each placement group, and a push has so many bytes.
    least(
        "osd_recovery_max_single_start",
        1.0,
        "nothing is recovered, also after it was put back, until OSDs restart",
    ),
    least("osd_recovery_max_chunk", 1.0, "nothing is recovered: a push has no bytes"),
    // ScrubResources: a scrub begins while fewer than osd_max_scrubs are under way.
    least("osd_max_scrubs", 1.0, "nothing is scrubbed any more, and damage is not found"),
    // OSD::get_num_op_shards and get_num_op_threads.
    least("osd_op_num_shards", 0.0, NO_SHARD),
    least("osd_op_num_shards_hdd", 1.0, NO_SHARD),
    least("osd_op_num_shards_ssd", 1.0, NO_SHARD),
    least("osd_op_num_threads_per_shard", 0.0, NO_THREAD),
    least("osd_op_num_threads_per_shard_hdd", 1.0, NO_THREAD),
    least("osd_op_num_threads_per_shard_ssd", 1.0, NO_THREAD),
    // PrimaryLogPG: check_offset_and_length gives EFBIG. Objects of images have 4 MiB by default (rbd_default_order).
    least("osd_max_object_size", 4_194_304.0, "writes beyond it fail, and objects of images have 4 MiB"),
];

/// The harm of a value, in words; nothing: none is known.
pub(super) fn harm(option: &str, value: &str) -> Option<String> {
    let value = value.parse::<f64>().ok()?;
    let known = LEAST.iter().find(|it| it.option == option && value < it.least)?;
    Some(format!("{}: {} is the least that serves", known.why, known.least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::OptionTable;

    #[test]
    fn a_value_that_stops_work_is_known() {
        for (option, value) in [
            ("osd_max_backfills", "0"),
            ("osd_recovery_max_active_ssd", "0"),
            ("osd_op_num_shards", "-1"),
            ("osd_op_num_shards_hdd", "0"),
            ("osd_recovery_max_chunk", "0"),
            ("osd_max_object_size", "4194303"),
        ] {
            assert!(harm(option, value).is_some(), "{option}={value}");
        }
        assert_eq!(
            harm("osd_max_backfills", "0").as_deref(),
            Some("no placement group is recovered or backfilled: 1 is the least that serves")
        );
    }

    #[test]
    fn nothing_by_choice_of_the_device_is_no_harm() {
        for (option, value) in [
            ("osd_recovery_max_active", "0"),
            ("osd_op_num_shards", "0"),
            ("osd_op_num_threads_per_shard", "0"),
            ("osd_client_message_cap", "0"),
            ("osd_max_backfills", "1"),
            ("osd_max_object_size", "4194304"),
        ] {
            assert_eq!(harm(option, value), None, "{option}={value}");
        }
    }

    #[test]
    fn no_default_of_a_release_is_a_harm() {
        for table in OptionTable::all() {
            let bad = table.iter().find(|it| harm(&it.name, &it.default).is_some());
            assert_eq!(bad, None);
        }
    }
}
