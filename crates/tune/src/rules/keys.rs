//! Keys of rules as patterns: a fact in braces is any word of a path.

/// A key with `*` for each fact in braces.
pub(super) fn pattern(key: &str) -> String {
    let mut parts = key.split('{');
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        all.push('*');
        all.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    all
}

/// True if a path is of a pattern, part by part. A part of a pattern has one `*` at most.
pub(super) fn is_of(pattern: &str, path: &str) -> bool {
    let (wants, parts): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    wants.len() == parts.len() && wants.iter().zip(parts).all(|(want, part)| is_part(want, part))
}

fn is_part(want: &str, part: &str) -> bool {
    match want.split_once('*') {
        None => want == part,
        Some((begin, end)) => {
            part.len() >= want.len()
                && !part.starts_with('.')
                && part.starts_with(begin)
                && part.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_in_a_key_is_one_word_of_a_path() {
        let key = pattern("/sys/block/{it.name}/device/scsi_disk/*/cache_type");
        assert_eq!(key, "/sys/block/*/device/scsi_disk/*/cache_type");
        assert!(is_of(&key, "/sys/block/sda/device/scsi_disk/0:0:0:0/cache_type"));
        for bad in
            ["/sys/block/a/b/device/scsi_disk/0/cache_type", "/sys/block/../device/scsi_disk/0/cache_type"]
        {
            assert!(!is_of(&key, bad), "{bad}");
        }
        assert!(is_of("vm.swappiness", "vm.swappiness") && !is_of("vm.swappiness", "vm.swappinesss"));
    }
}
