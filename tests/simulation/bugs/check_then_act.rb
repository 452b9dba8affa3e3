# frozen_string_literal: true

# The shop looks whether a ticket is left, asks the bank, and takes the ticket: two buyers get one.
Bugs.define("check then act") do |world, mended|
  tickets, sold = 1, 0
  world.link(latency: 0.001..0.1)
  Bugs.serve(world, "bank") { "paid" }
  Bugs.serve(world, "shop") do
    next "sold out" unless tickets.positive?

    tickets -= 1 if mended
    Bugs.ask("bank", "pay")
    tickets -= 1 unless mended
    sold += 1
    "sold"
  end
  2.times { |i| world.client("buyer #{i}") { sleep rand(0.0..0.5); Bugs.ask("shop", "buy") } }
  world.check { raise "sold #{sold} times" unless sold == 1 }
end
