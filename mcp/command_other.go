//go:build !unix && !windows

package mcp

import (
	"os"
	"os/exec"
)

// A processGroup is one process: these systems give no hold on what it starts.
type processGroup struct{ process *os.Process }

func newProcessGroup(*exec.Cmd) *processGroup { return &processGroup{} }
func (g *processGroup) adopt(p *os.Process)   { g.process = p }
func (g *processGroup) release()              {}
func (g *processGroup) terminate()            { _ = g.process.Kill() }
func (g *processGroup) kill()                 { _ = g.process.Kill() }
func (g *processGroup) gone() bool            { return true }
func signalOf(*os.ProcessState) string        { return "" }
