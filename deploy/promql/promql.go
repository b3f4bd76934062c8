// Package promql evaluates the panels of deploy's dashboard and its alert rules with
// Prometheus's own engine over what a running Sluice serves. It is a module of its
// own, so that nothing else of Sluice depends on Prometheus; `make alerts` tests it.
package promql
