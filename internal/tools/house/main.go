// Command house measures the structure of packages: how large their types are, and how many of the
// imports between their files point upward.
//
//	go run ./internal/tools/house [-v] DIR...
//	go run ./internal/tools/house -writes TYPE DIR...
//
// Each DIR stands for its package and the packages below it in the same module. Test files are
// ignored. The folders must belong to a module. The first form prints one line for each package:
//
//	files     Go files, for every system
//	names     exported constants, functions, types, variables and methods
//	mutexes   uses of sync.Mutex and sync.RWMutex
//	imports   pairs of files: the first uses a name that the second declares
//	upward    imports from a lower to a higher file; see order
//	share     upward ÷ imports
//	methods   methods of the five largest types
//	fields    fields of the five largest structs
//
// With -v the upward imports follow, each with the names that cause it. Imports and types are those
// of the files that the current system compiles.
//
// The second form prints the fields of the struct type TYPE that more than one package writes. An
// assignment, an increment, a key of a composite literal, taking the address and calling a method
// with a pointer receiver write a field.
// The exit code is 1 if there is such a field.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("house", flag.ContinueOnError)
	flags.SetOutput(stderr)
	verbose := flags.Bool("v", false, "print each upward import, with the names that cause it")
	typeName := flags.String("writes", "", "print the fields of this type that more than one package writes")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() == 0 {
		fmt.Fprintln(stderr, "usage: house [-v] DIR... | house -writes TYPE DIR...")
		return 2
	}
	var packages []*loaded
	for _, dir := range flags.Args() {
		found, err := load(ctx, dir)
		if err != nil {
			fmt.Fprintln(stderr, "house:", err)
			return 2
		}
		packages = append(packages, found...)
	}
	if *typeName != "" {
		return printWrites(stdout, stderr, packages, *typeName)
	}
	if err := printTable(stdout, packages, *verbose); err != nil {
		fmt.Fprintln(stderr, "house:", err)
		return 2
	}
	return 0
}

func printTable(w io.Writer, packages []*loaded, verbose bool) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "package\tfiles\tnames\tmutexes\timports\tupward\tshare\tmethods\tfields")
	for _, p := range packages {
		imports := p.imports()
		total, upward := imports.count(), len(order(p.files(), imports).upward)
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", p.name, p.fileCount, p.exportedNames(), p.mutexes(),
			total, upward, share(upward, total), largest(p.methods()), largest(p.fields()))
	}
	if err := table.Flush(); err != nil || !verbose {
		return err
	}
	for _, p := range packages {
		imports := p.imports()
		for _, edge := range order(p.files(), imports).upward {
			fmt.Fprintf(w, "%s: %s uses %s: %s\n", p.name, edge.from, edge.to,
				strings.Join(imports.names(edge.from, edge.to), ", "))
		}
	}
	return nil
}

func share(part, whole int) string {
	if whole == 0 {
		return "0%"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(part)/float64(whole))
}

// largest formats the five largest counts, as in "Client 40, Server 31".
func largest(counts map[string]int) string {
	type entry struct {
		name  string
		count int
	}
	var entries []entry
	for name, count := range counts {
		entries = append(entries, entry{name, count})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.name, b.name))
	})
	var texts []string
	for _, e := range entries[:min(5, len(entries))] {
		texts = append(texts, fmt.Sprintf("%s %d", e.name, e.count))
	}
	return strings.Join(texts, ", ")
}

func printWrites(stdout, stderr io.Writer, packages []*loaded, typeName string) int {
	writers, found := fieldWriters(packages, typeName)
	if !found {
		fmt.Fprintf(stderr, "house: no struct type %s in the folders\n", typeName)
		return 2
	}
	status := 0
	for _, f := range writers {
		if len(f.packages) > 1 {
			status = 1
			fmt.Fprintf(stdout, "%s: %s\n", f.field, strings.Join(f.packages, ", "))
		}
	}
	return status
}
