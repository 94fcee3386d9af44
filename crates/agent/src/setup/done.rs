//! The steps of a setup, as they are told.

/// What was done to a LUN, or to the cluster.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Done {
    /// The path to the LUN, or `cluster`.
    pub lun: String,
    /// What.
    pub what: String,
}
