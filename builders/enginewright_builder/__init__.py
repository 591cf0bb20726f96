"""What runs inside a build Job: fetch, export, optimise, prove, publish."""
