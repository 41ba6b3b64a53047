//go:build !unix && !windows

package childproc

import (
	"os"
	"os/exec"
)

// A processGroup is a process: these systems cannot end its descendants.
type processGroup struct{ process *os.Process }

func newProcessGroup(*exec.Cmd) *processGroup { return &processGroup{} }
func (g *processGroup) add(p *os.Process)     { g.process = p }
func (g *processGroup) release()              {}
func (g *processGroup) terminate()            { _ = g.process.Kill() }
func (g *processGroup) kill()                 { _ = g.process.Kill() }
func (g *processGroup) hasEnded() bool        { return true }
func signalOf(*os.ProcessState) string        { return "" }
