// Package containerfaults breaks nodes that run in containers, on networks of their own, through the container engine:
// frozen, gone and empty, cut off, and cut into two sides that see different majorities.
package containerfaults
