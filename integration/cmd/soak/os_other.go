//go:build !linux

package main

import "syscall"

// sysProcAttr keeps the terminal's Ctrl-C away from a worker process, which ends when the parent's socket does.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
