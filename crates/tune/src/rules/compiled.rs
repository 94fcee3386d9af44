//! A rule whose expressions are compiled.

use super::rule::{Rule, Set};
use crate::expression::{Expression, Template};

/// A rule whose expressions are compiled.
#[derive(Debug)]
pub struct CompiledRule {
    /// The rule.
    pub rule: Rule,
    pub(crate) when: Expression,
    pub(crate) reason: Template,
    pub(crate) sets: Vec<CompiledSet>,
}

/// A value of a rule whose expressions are compiled.
#[derive(Debug)]
pub(crate) struct CompiledSet {
    pub(crate) set: Set,
    pub(crate) who: Template,
    pub(crate) key: Template,
    pub(crate) value: Option<Expression>,
}
