package main

import "syscall"

// dieWithUs has the kernel end the command when redlock itself dies: its lock would run out a lease later, and somebody
// else would start while it still runs.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
