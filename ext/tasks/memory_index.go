package tasks

import (
	"iter"
	"math/rand/v2"
)

// An index keeps entries in an order. It is a treap: a search tree by the order and a heap by random weights, which keep
// it as deep as the logarithm of its size whatever the order is in which entries come and go.
type index struct {
	before func(a, b *entry) bool
	root   *treeNode
	size   int
}

type treeNode struct {
	entry       *entry
	left, right *treeNode
	weight      uint32
}

// insert adds an entry that is not there.
func (x *index) insert(e *entry) {
	x.size++
	node := &treeNode{entry: e, weight: rand.Uint32()}
	at := &x.root
	for *at != nil && (*at).weight >= node.weight {
		at = (*at).side(x.before(e, (*at).entry))
	}
	node.left, node.right = x.split(*at, e)
	*at = node
}

// remove takes away an entry that is there. What orders it must be what it was when it was inserted.
func (x *index) remove(e *entry) {
	at := &x.root
	for *at != nil && (*at).entry != e {
		at = (*at).side(x.before(e, (*at).entry))
	}
	if *at == nil {
		return
	}
	x.size--
	*at = merge((*at).left, (*at).right)
}

// side returns the place of one of the two children.
func (n *treeNode) side(left bool) **treeNode {
	if left {
		return &n.left
	}
	return &n.right
}

// split parts a tree into what comes before e and what comes after it.
func (x *index) split(tree *treeNode, e *entry) (before, after *treeNode) {
	toBefore, toAfter := &before, &after
	for tree != nil {
		if x.before(tree.entry, e) {
			*toBefore, toBefore, tree = tree, &tree.right, tree.right
			continue
		}
		*toAfter, toAfter, tree = tree, &tree.left, tree.left
	}
	*toBefore, *toAfter = nil, nil
	return before, after
}

// merge joins two trees, all of a before all of b.
func merge(a, b *treeNode) (root *treeNode) {
	at := &root
	for a != nil && b != nil {
		if a.weight >= b.weight {
			*at, at, a = a, &a.right, a.right
			continue
		}
		*at, at, b = b, &b.left, b.left
	}
	if *at = a; a == nil {
		*at = b
	}
	return root
}

func (x *index) first() *entry {
	if x.root == nil {
		return nil
	}
	node := x.root
	for node.left != nil {
		node = node.left
	}
	return node.entry
}

// after returns the entries behind e, which need not be there, in their order. There are none in a nil index.
func (x *index) after(e *entry) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if x != nil {
			x.walk(x.root, e, yield)
		}
	}
}

func (x *index) walk(tree *treeNode, e *entry, yield func(*entry) bool) bool {
	if tree == nil {
		return true
	}
	if !x.before(e, tree.entry) {
		return x.walk(tree.right, e, yield)
	}
	return x.walk(tree.left, e, yield) && yield(tree.entry) && x.walk(tree.right, e, yield)
}
