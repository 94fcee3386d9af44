//! The objects that rules are asked of, each shown to expressions once.

use crate::expression::{NoAnswer, Shown};
use crate::facts::Facts;
use crate::rules::Subject;
use serde::Serialize;
use std::collections::BTreeMap;

/// One object.
pub(super) struct Object<'a> {
    /// Its name for people: `osd.0`, `disk sda of n1`.
    pub(super) name: String,
    /// The name of its host.
    host: Option<&'a str>,
    /// The major release that counts for it.
    pub(super) release: Option<i64>,
    /// The object as `it`.
    pub(super) it: Shown,
}

/// All objects of the facts.
pub(super) struct Subjects<'a> {
    objects: BTreeMap<Subject, Vec<Object<'a>>>,
    hosts: BTreeMap<&'a str, Shown>,
    no_host: Shown,
}

impl<'a> Subjects<'a> {
    pub(super) fn new(facts: &'a Facts) -> Result<Subjects<'a>, NoAnswer> {
        let hosts = facts.hosts.iter().map(|host| Ok((host.name.as_str(), Shown::new(host)?)));
        let nothing: BTreeMap<&str, i64> = BTreeMap::new();
        let mut all = Subjects {
            objects: BTreeMap::new(),
            hosts: hosts.collect::<Result<_, NoAnswer>>()?,
            no_host: Shown::new(&nothing)?,
        };
        let of_cluster = facts.cluster.release;
        all.add(Subject::Cluster, "cluster".to_owned(), None, of_cluster, &facts.cluster)?;
        for it in &facts.osds {
            all.add(Subject::Osd, format!("osd.{}", it.id), Some(&it.host), it.release.or(of_cluster), it)?;
        }
        for it in &facts.hosts {
            all.add(Subject::Host, format!("host {}", it.name), Some(&it.name), of_cluster, it)?;
        }
        for it in &facts.disks {
            let name = format!("disk {} of {}", it.name, it.host);
            all.add(Subject::Disk, name, Some(&it.host), of_cluster, it)?;
        }
        for it in &facts.nics {
            let name = format!("interface {} of {}", it.name, it.host);
            all.add(Subject::Nic, name, Some(&it.host), of_cluster, it)?;
        }
        for it in &facts.pools {
            all.add(Subject::Pool, format!("pool {}", it.name), None, of_cluster, it)?;
        }
        for it in &facts.images {
            all.add(Subject::Image, format!("image {}/{}", it.pool, it.name), None, of_cluster, it)?;
        }
        for it in &facts.clients {
            let name = format!("client {} of {}", it.name, it.host);
            all.add(Subject::Client, name, Some(&it.host), of_cluster, it)?;
        }
        for it in &facts.caches {
            let name = format!("cache {} of {}", it.name, it.host);
            all.add(Subject::Cache, name, Some(&it.host), of_cluster, it)?;
        }
        Ok(all)
    }

    fn add<T: Serialize>(
        &mut self,
        kind: Subject,
        name: String,
        host: Option<&'a str>,
        release: Option<i64>,
        it: &T,
    ) -> Result<(), NoAnswer> {
        let object = Object { name, host, release, it: Shown::new(it)? };
        self.objects.entry(kind).or_default().push(object);
        Ok(())
    }

    /// Those of one kind, in the order of the facts.
    pub(super) fn of(&self, kind: Subject) -> &[Object<'a>] {
        self.objects.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// The host of an object; one without facts where it has none that was asked.
    pub(super) fn host(&self, object: &Object<'_>) -> &Shown {
        object.host.and_then(|name| self.hosts.get(name)).unwrap_or(&self.no_host)
    }
}
