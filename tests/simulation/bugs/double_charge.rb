# frozen_string_literal: true

# The shop tries again if it hears nothing for a second, but the bank has charged already: only the answer was late.
Bugs.define("double charge") do |world, mended|
  charged = []
  world.link(latency: 0.001..0.05, drop: 0.2)
  Bugs.serve(world, "bank") do |order|
    charged << order unless mended && charged.include?(order)
    "done"
  end
  world.client("shop") do
    Timeout.timeout(1) { Bugs.ask("bank", "order 1") }
  rescue Timeout::Error
    retry
  end
  world.check { raise "charged #{charged.size} times" unless charged.size == 1 }
end
