//! Figures that were measured before, taken over into facts of now.

use crate::facts::{Disk, Facts, Osd};

/// Measured facts are not those of this cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// They have no cluster's id.
    #[error("they name no cluster: gather them without --anonymous and without --no-cluster")]
    Nameless,
    /// They have another one.
    #[error("they are of the cluster {theirs}, and this is {ours}: measure this one")]
    Other {
        /// Their cluster.
        theirs: String,
        /// The cluster of now.
        ours: String,
    },
}

/// Takes over what was measured. An OSD or disk that is another by now has none of it.
///
/// # Errors
/// If it is of another cluster.
pub fn take_over(facts: &mut Facts, measured: &Facts) -> Result<(), Foreign> {
    let Some(theirs) = &measured.cluster.fsid else { return Err(Foreign::Nameless) };
    let ours = facts.cluster.fsid.clone().unwrap_or_default();
    if *theirs != ours {
        return Err(Foreign::Other { theirs: theirs.clone(), ours });
    }
    for osd in facts.osds.iter_mut().filter(|osd| osd.measured.is_none()) {
        let is_it = |it: &&Osd| (it.id, &it.host, it.bytes) == (osd.id, &osd.host, osd.bytes);
        // A figure from before a cache says nothing of the OSD behind it.
        let kind = |it: &Osd| it.cache.as_ref().map(|cache| cache.kind.clone());
        let before = measured.osds.iter().find(|it| is_it(it) && kind(it) == kind(osd));
        osd.measured = before.and_then(|it| it.measured.clone());
    }
    for disk in facts.disks.iter_mut().filter(|disk| disk.measured_read_us.is_none()) {
        let is_it = |it: &&Disk| {
            (&it.name, &it.host, it.bytes, &it.model) == (&disk.name, &disk.host, disk.bytes, &disk.model)
        };
        let Some(before) = measured.disks.iter().find(is_it) else { continue };
        (disk.measured_read_us, disk.measured_rotational) =
            (before.measured_read_us, before.measured_rotational);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Behind, Cluster, Measured};

    #[test]
    fn figures_are_those_of_the_same_osd_and_cluster() {
        let behind = |kind: &str| Some(Behind { kind: kind.into(), ..Behind::default() });
        let osd = |id, kind: &str, measured| Osd { id, cache: behind(kind), measured, ..Osd::default() };
        let of = |fsid: &str, osds| Facts {
            cluster: Cluster { fsid: Some(fsid.into()), ..Cluster::default() },
            osds,
            ..Facts::default()
        };
        let figure = Some(Measured { iops: 300.0, ..Measured::default() });
        let before = of("f", vec![osd(0, "", figure.clone()), osd(1, "", figure.clone())]);
        let mut now = of("f", vec![osd(0, "", None), osd(1, "loligo", None)]);
        assert_eq!(take_over(&mut now, &before), Ok(()));
        assert_eq!((&now.osds[0].measured, &now.osds[1].measured), (&figure, &None));
        let mut other = of("g", vec![osd(0, "", None)]);
        assert!(matches!(take_over(&mut other, &before), Err(Foreign::Other { .. })));
        assert_eq!(take_over(&mut other, &Facts::default()), Err(Foreign::Nameless));
    }
}
