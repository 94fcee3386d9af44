//! Workloads, runners, statistics, reports
