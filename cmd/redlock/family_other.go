//go:build !unix

package main

import (
	"os/exec"
	"time"
)

// family is the command that runs under a lock. There are no signals here to pass on.
type family struct{ child *exec.Cmd }

func newFamily(child *exec.Cmd) *family      { return &family{child} }
func (f *family) passSignals() (stop func()) { return func() {} }
func (f *family) started()                   {}
func (f *family) end(ended <-chan error, _ time.Duration) {
	f.child.Process.Kill()
	<-ended
}
