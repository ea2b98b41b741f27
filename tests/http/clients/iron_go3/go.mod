module postroad/iron_go3

go 1.24
