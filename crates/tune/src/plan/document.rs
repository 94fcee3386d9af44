//! A plan as a document.

use super::now::Now;
use crate::rules::{Evidence, Goal, Kind, Observe, Risk, Target, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purpose {
    /// What the clients do.
    pub workload: Workload,
    /// What is to become better.
    pub goal: Goal,
}

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What it is for.
    pub purpose: Purpose,
    /// Seconds since 1970 at which the facts were gathered.
    pub taken: u64,
    /// The cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsid: Option<String>,
    /// Changes, those of the least risk first.
    pub proposals: Vec<Proposal>,
    /// Advice that was followed and does harm, and checks that found something: for a person.
    pub findings: Vec<Finding>,
    /// Rules that could not be told, with the facts that are missing.
    pub unknown: Vec<Unknown>,
    /// The other rules, by what became of them.
    pub others: BTreeMap<Other, Vec<String>>,
}

/// What became of a rule that proposes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Other {
    /// All is as it says.
    Already,
    /// Its condition holds nowhere.
    NotHere,
    /// The release does it by itself, or takes it without effect, or has no such thing.
    NotInThisRelease,
    /// It serves another goal or workload.
    OtherPurpose,
    /// A rule before it would be undone by it.
    InConflict,
}

/// What one rule would change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// The rule.
    pub rule: String,
    /// The same in a few words.
    pub title: String,
    /// What it costs to apply it.
    pub risk: Risk,
    /// True if it takes something away that older advice left.
    pub removes: bool,
    /// The objects that it is for: `osd.0`, `host n1`.
    pub subjects: Vec<String>,
    /// The reason, for the first of them.
    pub reason: String,
    /// The effect that is to be seen.
    pub expect: String,
    /// The price.
    pub cost: String,
    /// The way to see it.
    pub verify: String,
    /// Grounds.
    pub evidence: Vec<Evidence>,
    /// What there is to know of it in this release.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The changes.
    pub changes: Vec<Change>,
}

/// One value that is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The kind of place.
    pub target: Target,
    /// The place.
    pub who: String,
    /// The name there.
    pub key: String,
    /// The value now.
    pub now: Now,
    /// The value afterwards; nothing: it is taken away.
    pub value: Option<String>,
    /// The structure that shows the effect.
    pub observe: Observe,
}

impl Change {
    /// True if both are at one place.
    pub fn is_at(&self, other: &Change) -> bool {
        (self.target, &self.who, &self.key) == (other.target, &other.who, &other.key)
    }
}

/// Something for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The rule.
    pub rule: String,
    /// The same in a few words.
    pub title: String,
    /// A refusal, a check or advice.
    pub kind: Kind,
    /// The objects that it is about.
    pub subjects: Vec<String>,
    /// The reason, for the first of them.
    pub reason: String,
    /// The price of not acting, or of acting.
    pub cost: String,
    /// Grounds.
    pub evidence: Vec<Evidence>,
    /// What there is to know of it in this release.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A rule that could not be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unknown {
    /// The rule.
    pub rule: String,
    /// The same in a few words.
    pub title: String,
    /// The objects of which it could not be told.
    pub subjects: Vec<String>,
    /// The fact that is missing, or the failure.
    pub why: String,
}
