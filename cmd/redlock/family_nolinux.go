//go:build unix && !linux

package main

import "syscall"

// dieWithUs can do nothing here: only Linux ends a child with its parent.
func dieWithUs(*syscall.SysProcAttr) {}
