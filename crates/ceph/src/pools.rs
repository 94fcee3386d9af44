//! The kind of pool that holds an image's data.

use crate::CephError;
use crate::cluster::Cluster;
use serde::Deserialize;

/// `pg_pool_t::TYPE_ERASURE`.
const ERASURE: u32 = 3;

#[derive(Debug, Deserialize)]
struct Dump {
    pools: Vec<Pool>,
}

#[derive(Debug, Deserialize)]
struct Pool {
    pool: i64,
    pool_name: String,
    #[serde(rename = "type")]
    kind: u32,
    read_tier: i64,
    write_tier: i64,
    tier_of: i64,
}

/// The reason why groups of writes do not suit the pool; empty: they do.
///
/// # Errors
/// If the monitors cannot be asked.
pub(crate) fn ungrouped(cluster: &Cluster, id: i64) -> Result<Vec<String>, CephError> {
    let dump = cluster.ask_monitor(r#"{"prefix":"osd dump","format":"json"}"#)?;
    let dump: Dump = serde_json::from_str(&dump)
        .map_err(|e| CephError::named(format!("'osd dump' of this cluster is not understood: {e}")))?;
    Ok(dump.pools.iter().filter(|p| p.pool == id).flat_map(reasons).collect())
}

fn reasons(p: &Pool) -> Option<String> {
    if p.kind == ERASURE {
        return Some(format!("its data pool {} is erasure-coded", p.pool_name));
    }
    let tiered = [p.read_tier, p.write_tier, p.tier_of].iter().any(|t| *t >= 0);
    tiered.then(|| format!("its data pool {} has a cache tier", p.pool_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erasure_coded_and_tiered_pools_are_told_from_plain_ones() {
        let pool = |kind, read_tier| Pool {
            pool: 2,
            pool_name: "data".to_owned(),
            kind,
            read_tier,
            write_tier: -1,
            tier_of: -1,
        };
        assert_eq!(reasons(&pool(1, -1)), None);
        assert!(reasons(&pool(3, -1)).unwrap().contains("erasure"));
        assert!(reasons(&pool(1, 7)).unwrap().contains("tier"));
    }
}
