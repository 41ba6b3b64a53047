package main

import (
	"cmp"
	"go/types"
	"maps"
	"slices"
	"strings"
)

// A graph maps a file to the files whose names it uses, and these to the names.
type graph map[string]map[string]map[string]bool

// imports returns the imports between the files of a package. A name is anything declared outside
// of function bodies: a constant, function, type, variable, method or field.
func (p *loaded) imports() graph {
	g := graph{}
	for id, used := range p.info.Uses {
		switch o := used.(type) {
		case *types.Func:
			used = o.Origin()
		case *types.Var:
			used = o.Origin()
		}
		if used.Pkg() != p.types || !used.Pos().IsValid() {
			continue
		}
		from, to := p.file(id.Pos()), p.file(used.Pos())
		if from == to {
			continue
		}
		if g[from] == nil {
			g[from] = map[string]map[string]bool{}
		}
		if g[from][to] == nil {
			g[from][to] = map[string]bool{}
		}
		g[from][to][used.Name()] = true
	}
	return g
}

func (g graph) count() int {
	total := 0
	for _, targets := range g {
		total += len(targets)
	}
	return total
}

func (g graph) names(from, to string) []string { return slices.Sorted(maps.Keys(g[from][to])) }

// needs returns the number of names that a file uses of other files.
func (g graph) needs(file string) int {
	total := 0
	for _, names := range g[file] {
		total += len(names)
	}
	return total
}

type edge struct{ from, to string }

// An ordering contains the files from the highest to the lowest, and the imports from a lower to a
// higher file.
type ordering struct {
	files  []string
	upward []edge
}

// order arranges files so that few imports point upward: it repeatedly takes the next file that no
// remaining file imports, or else the file with the largest surplus of imports over importers.
// Among equal files the file that needs the most names is next, then the first by name.
//
// Only imports within a circle can point upward. A file that is not part of a circle is taken when
// nothing above it remains, so the result is the same as with each circle contracted to a group.
func order(files []string, g graph) ordering {
	var result ordering
	for _, group := range groups(files, g) {
		remaining := slices.Clone(group)
		for len(remaining) > 0 {
			next := highest(remaining, g)
			for _, lower := range remaining {
				if lower != next && g[lower][next] != nil {
					result.upward = append(result.upward, edge{lower, next})
				}
			}
			result.files = append(result.files, next)
			remaining = slices.DeleteFunc(remaining, func(file string) bool { return file == next })
		}
	}
	slices.SortFunc(result.upward, func(a, b edge) int {
		return cmp.Or(strings.Compare(a.from, b.from), strings.Compare(a.to, b.to))
	})
	return result
}

// highest returns the next file of order.
func highest(remaining []string, g graph) string {
	rank := func(file string) (needed bool, surplus int) {
		for _, other := range remaining {
			if g[file][other] != nil {
				surplus++
			}
			if g[other][file] != nil {
				needed = true
				surplus--
			}
		}
		return needed, surplus
	}
	return slices.MinFunc(remaining, func(a, b string) int {
		neededA, surplusA := rank(a)
		neededB, surplusB := rank(b)
		if neededA != neededB {
			if neededA {
				return 1
			}
			return -1
		}
		byNames := cmp.Or(cmp.Compare(g.needs(b), g.needs(a)), strings.Compare(a, b))
		if !neededA {
			return byNames
		}
		return cmp.Or(cmp.Compare(surplusB, surplusA), byNames)
	})
}

// groups returns the circles of files that import each other, directly or not, with the groups that
// import others first. It is Tarjan's algorithm, which finds them in the reverse order.
func groups(files []string, g graph) [][]string {
	index, low := map[string]int{}, map[string]int{}
	onStack := map[string]bool{}
	var stack []string
	var found [][]string
	var visit func(file string)
	visit = func(file string) {
		index[file] = len(index) + 1
		low[file] = index[file]
		stack = append(stack, file)
		onStack[file] = true
		for _, to := range slices.Sorted(maps.Keys(g[file])) {
			switch {
			case index[to] == 0:
				visit(to)
				low[file] = min(low[file], low[to])
			case onStack[to]:
				low[file] = min(low[file], index[to])
			}
		}
		if low[file] != index[file] {
			return
		}
		start := slices.Index(stack, file)
		group := slices.Clone(stack[start:])
		stack = stack[:start]
		for _, member := range group {
			onStack[member] = false
		}
		found = append(found, group)
	}
	for _, file := range slices.Sorted(slices.Values(files)) {
		if index[file] == 0 {
			visit(file)
		}
	}
	slices.Reverse(found)
	return found
}
