package main

import (
	_ "embed"
	"io"
	"os"
	"strings"
	"text/template"
	"time"
)

//go:embed document.md
var documentText string

//go:embed gateway.md
var gatewayText string

// A document is the data of the published report of a run.
type document struct {
	Date       string
	Conditions []string
	Servers    []comparedServer
	Tables     string
}

// A comparedServer is a row of the document.
type comparedServer struct{ Name, Description string }

// writeDocument writes the document of a run to a file.
func (b *bench) writeDocument(name, tables string, workloads []workload) error {
	text := documentText
	if areGateways(workloads) {
		text = gatewayText
		var targets strings.Builder
		writeTargets(&targets, b.targets)
		tables += targets.String()
	}
	d := document{
		Date:       time.Now().UTC().Format(time.DateOnly),
		Conditions: b.conditions(),
		Tables:     strings.TrimSpace(tables),
	}
	for _, s := range b.servers {
		d.Servers = append(d.Servers, comparedServer{s.name, s.description})
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := d.write(f, text); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (d document) write(out io.Writer, text string) error {
	t, err := template.New("").Parse(text)
	if err != nil {
		return err
	}
	return t.Execute(out, d)
}
