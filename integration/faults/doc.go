// Package faults breaks redis-server processes, their clocks, their data and the ways to them, one fault at a time,
// while locks are held and asked for, and looks at what the library promised for each: its tests are the fault suite.
// The table of faults, tests and outcomes is in ../README.md.
package faults
