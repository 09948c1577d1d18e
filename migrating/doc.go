// Package migrating has the code that docs/migrating.md shows of redsync: before, after, and in between, where a program takes both
// locks. Its test asks redsync itself who excludes whom. What is shown of rueidislock is in the root's migrating_test.go.
package migrating
