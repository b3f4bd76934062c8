// Package structure keeps the source tree as ARCHITECTURE.md draws it. Its tests
// read every Go file of the module, tests included, and check: which packages of
// ours a package imports, which third-party library belongs to whom, that every
// package has a comment, how long files are, and what no file may contain.
//
// The rules are data in rules_test.go. A new package, or a new library, needs a
// line there and in ARCHITECTURE.md; that is the moment to ask whether it is
// needed.
//
// The package has no code to import. It reads files only, runs no go command and
// knows nothing of build tags: a file that is built nowhere keeps the rules, too.
package structure
